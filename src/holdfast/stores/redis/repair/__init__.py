"""Doctor, salvage and recount: what does not agree is found and repaired."""
