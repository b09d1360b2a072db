"""What `fl.flower` needs: clients of Flower that know nothing of fl."""
