"""The figures of a report. Each consists of panels: separate images on the page, one figure in the files."""
