"""One module per model version: how a conversation becomes a prompt. A module here with a `TEMPLATE` is a version."""
