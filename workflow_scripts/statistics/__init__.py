"""What a comparison between arms may say: pass@k, effects with their intervals and verdicts, noise floors, power.

Letters in shapes: S training seeds of an arm, N problems of a benchmark. Functions take arrays and return numbers; what
the data do not determine is nan.
"""
