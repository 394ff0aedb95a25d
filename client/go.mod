module github.com/annalsdb/annals/client

go 1.26.0
