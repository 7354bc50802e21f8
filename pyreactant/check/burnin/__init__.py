"""A burn-in: rounds on devices and links, the verdict over what they measured, a certificate."""
