"""What a folder of logs says: how long texts are, what stopping them would have saved, what could be promised."""
