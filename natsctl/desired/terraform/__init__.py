"""Resources of Terraform's JetStream provider, read into wanted assets: what `terraform apply` would have created.

HCL becomes blocks and expressions (syntax), these become values (expression, template, functions) in the scope of a
folder (module) with its variables (variables); a state has its values already (state). schema.py knows the provider's
attributes; assets.py makes configurations of them. Nothing is asked of a server, and Terraform is not needed.
"""

from __future__ import annotations

from natsctl.desired.terraform.conversion import read_terraform

__all__ = ["read_terraform"]
