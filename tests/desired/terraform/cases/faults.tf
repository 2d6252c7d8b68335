locals { loop = local.loop }
resource "jetstream_stream" "A" {
  name     = var.missing
  subjects = [data.aws_thing.x.name, "b"]
  max_age  = file("age.txt")
  max_msgs = 1 / 0
  storage  = "disk"
  max_byte = 5
  replicas = "three"
  sources { name = "B" }
}
resource "jetstream_stream" "B" {
  count = length(local.loop)
  name  = "B"
}
resource "jetstream_consumer" "C" {
  stream_id    = jetstream_stream.A.subjects
  durable_name = "C"
  deliver_all  = true
  deliver_new  = true
}
