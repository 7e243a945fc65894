"""`pareo history`: results over time, and when something became faster or slower."""
