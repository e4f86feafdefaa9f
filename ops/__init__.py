"""The op contract: specs, record layouts, dispatch. What the model and the runtime call."""
