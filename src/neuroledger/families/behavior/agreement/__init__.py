"""Agreement of errors and accuracies between observers."""
