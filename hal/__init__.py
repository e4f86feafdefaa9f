"""Hardware abstraction: devices, backends, kernel registry, graphs, communicators, typed errors."""
