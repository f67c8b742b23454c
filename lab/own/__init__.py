"""What the default of `pairtune train --data` rests on: a dozen cases of a user's own data, and the choice of the rules."""
