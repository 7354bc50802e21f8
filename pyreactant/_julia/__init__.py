"""Julia's place, its project and the preferences in it; starts no Julia."""
