"""What the report page and the summary say."""
