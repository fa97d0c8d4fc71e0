"""What context costs, and how often the right tool is found, measured on real catalogues that are not part of this."""
