"""What several masks share, beside chance."""
