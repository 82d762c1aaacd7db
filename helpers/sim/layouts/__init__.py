"""How tiles, boxes and fragments lie in memory and in registers."""
