variable "env" { default = "test" }
variable "size" { type = number }
locals {
  kinds = { new = 1, old = 2 }
  first = [for kind, days in local.kinds : upper(kind) if days < 2]
  text  = <<-END
    for ${var.env}:
      $${literal}
  END
}
resource "jetstream_stream" "S" {
  for_each    = local.kinds
  name        = "${var.env}-${each.key}"
  subjects    = ["${each.key}.>"]
  description = local.text
  max_age     = each.value * 24 * 60 * 60
  max_bytes   = var.size > 1 ? pow(2, 20) : -1
  metadata    = { for name, days in local.kinds : name => "${days}d" }
  dynamic "source" {
    for_each = local.first
    content { name = source.value }
  }
  lifecycle { prevent_destroy = true }
}
resource "jetstream_consumer" "C" {
  count          = length(local.kinds)
  stream_id      = jetstream_stream.S["new"].id
  durable_name   = format("worker-%02d", count.index)
  deliver_all    = !false && 7 % 4 == 3
  filter_subject = jetstream_stream.S["new"].subjects[0]
}
