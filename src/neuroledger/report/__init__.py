"""Reports: tables, leaderboards, figures and pages from records."""
