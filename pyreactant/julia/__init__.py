"""Julia's executable and project, and the preferences in the project; starts no Julia."""
