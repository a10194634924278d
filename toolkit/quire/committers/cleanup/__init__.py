"""What jobs of Spark have left behind: seen, and swept."""
