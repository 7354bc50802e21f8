"""Report pages: one style sheet, one base template, and a template for each report."""
