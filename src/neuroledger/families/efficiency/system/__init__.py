"""Tasks of NeuroBench's system track, which are measured on the system that runs them."""
