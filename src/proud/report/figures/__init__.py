"""The report's figures: each is a row of panels that are shown one by one on a page and side by side on paper."""
