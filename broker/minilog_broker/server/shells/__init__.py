"""What stands around the cores: carries their effects out, and tells them what came of it."""
