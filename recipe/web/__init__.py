"""A page for people, served on this machine alone: requests as prompts, outputs as responses."""
