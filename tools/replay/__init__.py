"""Policies run by the real engine over recorded texts: many settings in minutes instead of days."""
