"""What `fl.torch` needs: devices, and steps that several clients take at once."""
