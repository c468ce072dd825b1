"""Networks that learn, forecast and answer labelled data."""
