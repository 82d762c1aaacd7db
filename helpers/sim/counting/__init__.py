"""What a launch costs, under Nsight Compute's names."""
