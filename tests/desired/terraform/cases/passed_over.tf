terraform {
  required_version = ">= 1"
}
provider "jetstream" {
  servers = "x"
}
resource "jetstream_kv_entry" "E" {
  bucket = "B"
  key    = "k"
  value  = "v"
}
resource "aws_s3_bucket" "B" {
  bucket = "b"
}
output "o" {
  value = 1
}
resource "jetstream_stream" "S" {
  name     = "S"
  subjects = ["S.>"]
  
}
