"""What happens when its time has come: age, TTLs, delete markers, schedules."""
