"""The `deepinfer` command: one module per subcommand, loaded when it is called."""
