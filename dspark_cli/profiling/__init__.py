"""From recordings to reports on acceptance: the profile, what it means, and the difference between two."""
