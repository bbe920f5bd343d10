package org.apache.hadoop.fs;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public class Path {
    public FileSystem getFileSystem(Configuration conf) throws IOException {
        throw new UnsupportedOperationException();
    }

    public URI toUri() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String toString() {
        throw new UnsupportedOperationException();
    }
}
