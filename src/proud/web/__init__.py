"""Pages and services on a local port: `proud review` and `proud serve`. No torch where images are only shown."""
