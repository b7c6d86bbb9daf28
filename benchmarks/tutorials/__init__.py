"""Programs as the tutorials of 40 libraries have them, by one who had not seen what graphopt does well."""
