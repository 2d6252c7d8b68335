resource "jetstream_stream" "S" {
  name = "S"
  subjects = ["S.>"]
  
}
resource "jetstream_consumer" "C" {
  stream_id = "JETSTREAM_STREAM_S"
  durable_name = "C"
  deliver_all = true
}
resource "jetstream_kv_bucket" "K" {
 name = "K"
}
resource "jetstream_obj_bucket" "O" {
 name = "O"
}
