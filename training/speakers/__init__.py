"""Trains the network of `app/assets/tutti-speakers`: it turns speech into a vector that depends on who speaks."""
