"""`pareo paper`: a paper's experiment, repeated here by the lab's own engines."""
