"""Reading requests, and the rules that the protocols share."""
