"""From places in the mass to the rows that have them."""
