variable "missing" {
  type = string
}
resource "jetstream_stream" "S" {
  name     = "S"
  subjects = ["S.>"]
  description = var.missing
}
