"""Finding an answer in a completion and reading its notation, for every grader."""
