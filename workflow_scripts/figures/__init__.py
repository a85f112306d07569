"""Figures (one function each: tables -> altair chart) and the words in which numbers are said."""
