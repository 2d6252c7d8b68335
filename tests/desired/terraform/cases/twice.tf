resource "jetstream_stream" "S" {
  name     = "S"
  subjects = ["S.>"]
  
}
resource "jetstream_stream" "T" {
  name     = "S"
  subjects = ["S.>"]
  
}
