"""Reports: records to tables, figures and pages."""
