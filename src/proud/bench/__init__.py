"""Many runs: combinations × seeds × methods as a queue that several workers may share, and their scores."""
