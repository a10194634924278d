"""From a listing to tasks: planners that pack files, and the check whether what they packed is even."""
