"""Where users come from: options, operators, and checks that take long."""
