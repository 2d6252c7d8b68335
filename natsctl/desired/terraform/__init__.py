"""Resources of Terraform's JetStream provider, read as assets, as `terraform apply` would have created.

HCL becomes blocks and expressions (hcl.py), these become values (expressions.py) in the scope of a folder with its
variables (configuration.py); a state has its values already. provider.py has the provider's attributes;
conversion.py makes configurations of them. No server is contacted, and Terraform is not needed.
"""

from __future__ import annotations

from natsctl.desired.terraform.conversion import read_terraform

__all__ = ["read_terraform"]
