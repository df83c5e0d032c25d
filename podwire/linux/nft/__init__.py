"""nftables by netlink, and by the `nft` program for whole rulesets."""
